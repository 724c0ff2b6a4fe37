# Warnings, sanitizers and definitions of our own targets.
add_library(stagecoach_options INTERFACE)
target_include_directories(stagecoach_options INTERFACE "${PROJECT_SOURCE_DIR}/src")
target_compile_options(stagecoach_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Werror>
  # Results must not depend on how a compiler contracts a * b + c.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
target_link_libraries(stagecoach_options INTERFACE Threads::Threads fmt::fmt)

if(STAGECOACH_SANITIZE STREQUAL "address")
  target_compile_options(stagecoach_options INTERFACE
    -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(stagecoach_options INTERFACE -fsanitize=address,undefined)
elseif(STAGECOACH_SANITIZE STREQUAL "thread")
  target_compile_options(stagecoach_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(stagecoach_options INTERFACE -fsanitize=thread)
  # GCC warns that TSan does not model atomic_thread_fence; ours are not needed for ordering.
  target_compile_options(stagecoach_options INTERFACE -Wno-tsan)
elseif(STAGECOACH_SANITIZE)
  message(FATAL_ERROR "STAGECOACH_SANITIZE must be empty, address or thread")
endif()

# stagecoach_library(NAME SOURCES ... LINKS ...): the static library of one folder.
function(stagecoach_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(stagecoach_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(stagecoach_${name} PUBLIC stagecoach_options ${ARG_LINKS}
                                           PRIVATE ${ARG_PRIVATE_LINKS})
endfunction()

# stagecoach_unit_test(NAME SOURCES ... LINKS ...): one GoogleTest program, no MPI, no GPU.
function(stagecoach_unit_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINKS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE stagecoach_options stagecoach_test_support ${ARG_LINKS}
                                        GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS unit)
endfunction()
