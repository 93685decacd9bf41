# The rules of checkpoints that come with the library: each rules/NAME.rules becomes a string of C, found by its name.
file(GLOB rules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/rules/*.rules)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${rules})
set(rows "")
foreach(file ${rules})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
    string(APPEND rows "    {\"${name}\",\n     \"${text}\"},\n")
endforeach()
set(rules_source ${PROJECT_BINARY_DIR}/shipped_rules.c)
file(CONFIGURE OUTPUT ${rules_source} @ONLY CONTENT "/* Made from rules/ by cmake/rules.cmake. */
#include \"checkpoint/shipped.h\"

const struct shipped_rules shipped_rules[] = {
@rows@    {0, 0},
};
")
