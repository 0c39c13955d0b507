# cmake -DPROGRAM=… -DCAUGHT_BY="pattern;pattern" -P must_fail.cmake: succeeds if the tests of every pattern fail (or crash).
if(NOT EXISTS "${PROGRAM}")
  message(FATAL_ERROR "${PROGRAM} has not been built")
endif()
foreach(pattern IN LISTS CAUGHT_BY)
  execute_process(COMMAND ${PROGRAM} --gtest_filter=${pattern} --gtest_fail_fast
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(result EQUAL 0)
    message(SEND_ERROR "the mutant passes ${pattern}, or there is no such test:\n${output}")
  else()
    string(REGEX MATCH "\\[  FAILED  \\][^\n]*" first "${output}")
    message(STATUS "${pattern} catches it (${result}): ${first}")
  endif()
endforeach()
