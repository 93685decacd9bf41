# The programs that `weft bench --peers` measures against, one for each MPI library whose compiler is found; none is needed.
# build/bench/peer_NAME, started by that library's launcher.
foreach(library openmpi mpich)
    find_program(WEFT_MPICC_${library} mpicc.${library})
    if(NOT WEFT_MPICC_${library} OR WEFT_SANITIZE)
        continue()
    endif()
    set(program ${PROJECT_BINARY_DIR}/bench/peer_${library})
    add_custom_command(OUTPUT ${program}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/bench
        COMMAND ${WEFT_MPICC_${library}} -std=c11 -O3 -Wall -Wextra -Wno-stringop-overflow -Wno-stringop-overread -I${PROJECT_SOURCE_DIR}
            -o ${program} ${peer} ${orders}
        DEPENDS ${peer} ${orders} bench/ranks/orders.h bench/ranks/peer_grid.h
            bench/work/grid.h bench/work/matrix.h bench/work/work.h
        COMMENT "Building bench/peer_${library}"
        VERBATIM)
    add_custom_target(bench_peer_${library} ALL DEPENDS ${program})
    install(PROGRAMS ${program} DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/weft)
endforeach()

# An example for weft and for MPI, side by side: build/examples/jacobi_NAME.
foreach(library openmpi mpich)
    if(NOT WEFT_MPICC_${library} OR WEFT_SANITIZE)
        continue()
    endif()
    set(program ${PROJECT_BINARY_DIR}/examples/jacobi_${library})
    add_custom_command(OUTPUT ${program}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/examples
        COMMAND ${WEFT_MPICC_${library}} -std=c11 -O3 -Wall -Wextra -o ${program} ${PROJECT_SOURCE_DIR}/examples/jacobi_mpi.c -lm
        DEPENDS examples/jacobi_mpi.c examples/jacobi.h
        COMMENT "Building examples/jacobi_${library}"
        VERBATIM)
    add_custom_target(examples_jacobi_${library} ALL DEPENDS ${program})
endforeach()
