# weft_flags: the warnings and sanitizers that every target of the tree is built with.
include(CheckCCompilerFlag)
add_library(weft_flags INTERFACE)
target_compile_options(weft_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
if(WEFT_DEVELOPER)
    target_compile_options(weft_flags INTERFACE -Werror)
endif()

if(WEFT_SANITIZE)
    target_compile_options(weft_flags INTERFACE
        -fsanitize=${WEFT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE})
    if(WEFT_SANITIZE MATCHES "address.*undefined") # AddressSanitizer sees nearly all of it: a sixth of the time to compile
        target_compile_options(weft_flags INTERFACE -fno-sanitize=null,object-size)
    endif()
    # Instrumented code makes gcc doubt what it can prove without: these warn wrongly there.
    foreach(flag maybe-uninitialized stringop-overflow format-truncation)
        check_c_compiler_flag(-W${flag} WEFT_HAS_W_${flag})
        if(WEFT_HAS_W_${flag})
            target_compile_options(weft_flags INTERFACE -Wno-${flag})
        endif()
    endforeach()
endif()
