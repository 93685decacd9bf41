# The modules that carry messages between hosts: shared objects that libweft loads when their URL is opened, each built where
# its library is found. WEFT_UCX and WEFT_MPI: AUTO (what is there), ON (must be there), OFF.
set(WEFT_UCX AUTO CACHE STRING "Build the UCX module: AUTO, ON or OFF")
set(WEFT_MPI AUTO CACHE STRING "Build the modules for Open MPI and MPICH: AUTO, ON or OFF")
set_property(CACHE WEFT_UCX WEFT_MPI PROPERTY STRINGS AUTO ON OFF)

# weft_add_module(NAME sources...): weft_NAME.so beside libweft
function(weft_add_module name)
    add_library(weft_${name} MODULE ${ARGN})
    set_target_properties(weft_${name} PROPERTIES
        PREFIX "" C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_include_directories(weft_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(weft_${name} PRIVATE weft_flags)
    install(TARGETS weft_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft)
endfunction()

function(weft_module_missing option library package)
    if(${option} STREQUAL "ON")
        message(FATAL_ERROR "${option} is ON, but ${library} is not found: install ${package}")
    endif()
    message(STATUS "module for ${library}: no (install ${package})")
endfunction()

# ---- UCX ----

if(WEFT_UCX STREQUAL "OFF")
    message(STATUS "module for UCX: no (WEFT_UCX is OFF)")
else()
    find_path(WEFT_UCX_INCLUDE ucp/api/ucp.h)
    find_library(WEFT_UCP_LIBRARY ucp)
    find_library(WEFT_UCS_LIBRARY ucs)
    if(WEFT_UCX_INCLUDE AND WEFT_UCP_LIBRARY AND WEFT_UCS_LIBRARY)
        message(STATUS "module for UCX: weft_ucx.so with ${WEFT_UCP_LIBRARY}")
        file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/transport/wire/ucx/*.c)
        weft_add_module(ucx ${sources} ${PROJECT_SOURCE_DIR}/src/base/process.c)
        target_include_directories(weft_ucx SYSTEM PRIVATE ${WEFT_UCX_INCLUDE})
        target_link_libraries(weft_ucx PRIVATE ${WEFT_UCP_LIBRARY} ${WEFT_UCS_LIBRARY})
    else()
        weft_module_missing(WEFT_UCX UCX libucx-dev)
    endif()
endif()

# ---- the MPI libraries, by their own compilers: mpicc.NAME as Debian calls them, else an mpicc that is the one ----

set(mpi_mark_openmpi OMPI_MAJOR_VERSION)
set(mpi_mark_mpich "define MPICH_VERSION")
set(mpi_title_openmpi "Open MPI")
set(mpi_title_mpich "MPICH")

# The folders of the headers, and what to link with, of the compiler; empty where it is not that library's.
function(weft_ask_mpicc mpicc name include_out link_out)
    set(${include_out} "" PARENT_SCOPE)
    execute_process(COMMAND ${mpicc} -show OUTPUT_VARIABLE line RESULT_VARIABLE status
        ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT status STREQUAL "0")
        return()
    endif()
    separate_arguments(words UNIX_COMMAND "${line}")
    set(folders "")
    set(link "")
    foreach(word ${words})
        if(word MATCHES "^-I(.+)")
            list(APPEND folders ${CMAKE_MATCH_1})
        elseif(word MATCHES "^-[Ll].+" OR word MATCHES "^-Wl,-rpath")
            list(APPEND link ${word})
        endif()
    endforeach()
    find_file(header mpi.h PATHS ${folders} NO_CACHE NO_CMAKE_FIND_ROOT_PATH NO_DEFAULT_PATH)
    if(NOT header)
        find_file(header mpi.h NO_CACHE)
    endif()
    if(NOT header)
        return()
    endif()
    file(STRINGS ${header} mark REGEX ${mpi_mark_${name}} LIMIT_COUNT 1)
    if(mark)
        set(${include_out} "${folders};${header}" PARENT_SCOPE)
        set(${link_out} "${link}" PARENT_SCOPE)
    endif()
endfunction()

foreach(name openmpi mpich)
    if(WEFT_MPI STREQUAL "OFF")
        message(STATUS "module for ${mpi_title_${name}}: no (WEFT_MPI is OFF)")
        continue()
    endif()
    find_program(WEFT_MPICC_${name} mpicc.${name})
    find_program(WEFT_MPICC mpicc)
    set(folders "")
    foreach(mpicc ${WEFT_MPICC_${name}} ${WEFT_MPICC})
        if(mpicc AND NOT folders)
            weft_ask_mpicc(${mpicc} ${name} folders link)
        endif()
    endforeach()
    if(NOT folders)
        weft_module_missing(WEFT_MPI ${mpi_title_${name}} lib${name}-dev)
        continue()
    endif()
    message(STATUS "module for ${mpi_title_${name}}: weft_mpi_${name}.so with ${link}")
    list(POP_BACK folders)
    set(weft_mpi_include_${name} ${folders}) # for tests
    set(weft_mpi_link_${name} ${link})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/transport/wire/mpi/*.c)
    weft_add_module(mpi_${name} ${sources})
    target_include_directories(weft_mpi_${name} SYSTEM PRIVATE ${folders})
    target_link_libraries(weft_mpi_${name} PRIVATE ${link})
endforeach()

# ---- devices ----

# The simulated device needs nothing but libc and pthreads.
message(STATUS "module for the simulated device: weft_sim.so")
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/sim/*.c)
weft_add_module(sim ${sources} ${PROJECT_SOURCE_DIR}/src/base/forks.c ${PROJECT_SOURCE_DIR}/src/base/process.c
    ${PROJECT_SOURCE_DIR}/src/base/thread.c)
target_link_libraries(weft_sim PRIVATE Threads::Threads)

# CUDA: nvcc compiles the kernels, and the module has them in it. The driver is opened at run time, so only its header is
# needed here. WEFT_CUDA_ARCHS: the architectures for which there is code; for later ones there is PTX.
set(WEFT_CUDA AUTO CACHE STRING "Build the CUDA module: AUTO, ON or OFF")
set(WEFT_CUDA_ARCHS "80;90;100;120" CACHE STRING "Architectures of the CUDA kernels")
set_property(CACHE WEFT_CUDA PROPERTY STRINGS AUTO ON OFF)
if(WEFT_CUDA STREQUAL "OFF")
    message(STATUS "module for CUDA: no (WEFT_CUDA is OFF)")
else()
    find_program(WEFT_NVCC nvcc PATHS /usr/local/cuda/bin)
    set(header "")
    if(WEFT_NVCC)
        get_filename_component(folder ${WEFT_NVCC} REALPATH)
        get_filename_component(folder ${folder} DIRECTORY)
        find_path(WEFT_CUDA_INCLUDE cuda.h PATHS ${folder}/../include /usr/local/cuda/include)
        set(header ${WEFT_CUDA_INCLUDE})
    endif()
    if(header)
        message(STATUS "module for CUDA: weft_cuda.so by ${WEFT_NVCC} for ${WEFT_CUDA_ARCHS}")
        set(fatbin ${PROJECT_BINARY_DIR}/cuda_kernels.fatbin)
        set(codes "")
        foreach(arch ${WEFT_CUDA_ARCHS})
            list(APPEND codes -gencode arch=compute_${arch},code=sm_${arch})
        endforeach()
        list(GET WEFT_CUDA_ARCHS -1 arch)
        list(APPEND codes -gencode arch=compute_${arch},code=compute_${arch})
        set(device ${PROJECT_SOURCE_DIR}/src/device)
        file(GLOB bodies CONFIGURE_DEPENDS ${device}/body*.h)
        add_custom_command(OUTPUT ${fatbin}
            COMMAND ${WEFT_NVCC} -std=c++17 -O3 -fmad=false -Xfatbin=-compress-all ${codes} -fatbin
                -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include -o ${fatbin} ${device}/cuda/kernels.cu
            DEPENDS ${device}/cuda/kernels.cu ${device}/cuda/gate.h ${bodies} ${device}/item.h
                ${device}/device_table.h ${device}/device.h
                ${PROJECT_SOURCE_DIR}/src/memory/half.h ${PROJECT_SOURCE_DIR}/src/memory/sum_keys.h
            COMMENT "Compiling CUDA kernels" VERBATIM)
        file(GLOB sources CONFIGURE_DEPENDS ${device}/cuda/*.c)
        weft_add_module(cuda ${sources} ${fatbin} ${PROJECT_SOURCE_DIR}/src/base/thread.c)
        set_source_files_properties(${device}/cuda/cuda.c PROPERTIES
            OBJECT_DEPENDS ${fatbin} COMPILE_DEFINITIONS CUDA_FATBIN="${fatbin}")
        target_include_directories(weft_cuda SYSTEM PRIVATE ${WEFT_CUDA_INCLUDE})
        target_link_libraries(weft_cuda PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    else()
        weft_module_missing(WEFT_CUDA CUDA "the CUDA toolkit")
    endif()
endif()
