# Each tests/fuzz/NAME.c is one libFuzzer program, build/fuzz/NAME. The library and the command
# line's parts are instrumented too, so the whole tree is configured for it (see `make fuzz`).
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.c)
add_custom_target(fuzzers)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(fuzz_${name} ${source})
    set_target_properties(fuzz_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    target_link_libraries(fuzz_${name} PRIVATE weft_objects weft_cli_objects)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers fuzz_${name})
endforeach()
