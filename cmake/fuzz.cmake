# Each tests/fuzz/NAME.c is one libFuzzer program, build/fuzz/NAME. What they reach is instrumented, too: an archive of the
# folders that read what strangers wrote and of those below them. The rest of the library would take most of the time to build.
set(fuzzed ${library_sources} ${PROJECT_SOURCE_DIR}/src/cli/files/npy.c)
list(FILTER fuzzed INCLUDE REGEX "/src/(base|layout|plan|memory|rendezvous|bus|checkpoint|cli/files)/|/shipped_rules\\.c$")
add_library(fuzzed STATIC EXCLUDE_FROM_ALL ${fuzzed})
target_include_directories(fuzzed PUBLIC src include)
target_link_libraries(fuzzed PUBLIC weft_flags Threads::Threads m ${CMAKE_DL_LIBS})

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.c)
add_custom_target(fuzzers)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(fuzz_${name} ${source})
    set_target_properties(fuzz_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    target_link_libraries(fuzz_${name} PRIVATE fuzzed)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers fuzz_${name})
endforeach()
