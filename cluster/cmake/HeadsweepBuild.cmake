# How every target of headsweep is built. One place for flags, so that no folder can drift.

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(HEADSWEEP_CCACHE ccache)
if(HEADSWEEP_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HEADSWEEP_CCACHE})
endif()

add_library(headsweep_flags INTERFACE)
target_compile_features(headsweep_flags INTERFACE cxx_std_20)
target_include_directories(headsweep_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(headsweep_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # GCC 12: false alarms in std::string (gcc PR 105329)
  $<$<BOOL:${HEADSWEEP_WERROR}>:-Werror>)
if(HEADSWEEP_SANITIZE)
  target_compile_options(headsweep_flags INTERFACE -fsanitize=${HEADSWEEP_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(headsweep_flags INTERFACE -fsanitize=${HEADSWEEP_SANITIZE})
endif()

find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)

# headsweep_library(FOLDER SOURCES a.cc … [PUBLIC target …] [PRIVATE target …]): the static library of one folder.
function(headsweep_library FOLDER)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(headsweep_${FOLDER} STATIC ${ARG_SOURCES})
  target_link_libraries(headsweep_${FOLDER} PUBLIC headsweep_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# headsweep_program(NAME SOURCES a.cc … LIBRARIES target …): a program, put at the top of the build folder.
function(headsweep_program NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE headsweep_flags ${ARG_LIBRARIES})
endfunction()
