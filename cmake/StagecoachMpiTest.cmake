# Tests that run under mpiexec. Any number of ranks on any number of cores: oversubscribed, unbound,
# and a rank that waits inside MPI yields its core.
set(STAGECOACH_MPI_TEST_ENVIRONMENT
  OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
if(STAGECOACH_SANITIZE STREQUAL "address")
  list(APPEND STAGECOACH_MPI_TEST_ENVIRONMENT
    "ASAN_OPTIONS=fast_unwind_on_malloc=0"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/sanitizers/lsan.supp:print_suppressions=0")
elseif(STAGECOACH_SANITIZE STREQUAL "thread")
  list(APPEND STAGECOACH_MPI_TEST_ENVIRONMENT
    "OMPI_MCA_pml=ob1" "OMPI_MCA_btl=self,vader"
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1:detect_deadlocks=0:suppressions=${PROJECT_SOURCE_DIR}/tests/sanitizers/tsan.supp")
endif()

# stagecoach_mpi_command(VAR RANKS): the start of a command line that runs a program on RANKS ranks.
function(stagecoach_mpi_command variable ranks)
  set(${variable} "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} ${ranks} --oversubscribe
      --bind-to none PARENT_SCOPE)
endfunction()

# stagecoach_add_mpi_test(NAME RANKS n [TIMEOUT s] COMMAND ...): one ctest entry, labelled mpi.
function(stagecoach_add_mpi_test name)
  cmake_parse_arguments(ARG "" "RANKS;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS mpi TIMEOUT ${ARG_TIMEOUT}
    PROCESSORS ${ARG_RANKS} ENVIRONMENT "${STAGECOACH_MPI_TEST_ENVIRONMENT}")
endfunction()

# stagecoach_mpi_test(NAME SOURCES ... LINKS ... RANKS 1 2 ...): one GoogleTest program that runs the
# same tests on every rank, and a ctest entry for each number of ranks.
function(stagecoach_mpi_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINKS;RANKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE stagecoach_mpi_main ${ARG_LINKS})
  foreach(ranks ${ARG_RANKS})
    stagecoach_mpi_command(mpiexec ${ranks})
    stagecoach_add_mpi_test(${name}_on_${ranks} RANKS ${ranks} TIMEOUT ${ARG_TIMEOUT}
      COMMAND ${mpiexec} $<TARGET_FILE:${name}>)
  endforeach()
endfunction()
