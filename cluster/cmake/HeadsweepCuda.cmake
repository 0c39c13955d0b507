# CUDA, where it is. Sets HEADSWEEP_WITH_CUDA, and with it the language CUDA, CMAKE_CUDA_ARCHITECTURES,
# HEADSWEEP_CUBLAS_INCLUDE (cublasLt.h) and, if NCCL is there, HEADSWEEP_NCCL_INCLUDE (nccl.h).
#
#   HEADSWEEP_CUDA                 AUTO: the CUDA backend is built when nvcc and cublasLt.h are found. ON: they must be. OFF.
#   HEADSWEEP_CUDA_ARCHITECTURES   "80;90;100": machine code for each, and PTX of the last for what comes later. "": the GPUs of
#                                  this machine, or else 80, whose PTX every later GPU can run (compiled when first started).
#
# Places: CMAKE_CUDA_COMPILER or CUDACXX; PATH; $CUDA_HOME, $CUDA_PATH, $CUDA_ROOT (environment modules); /usr/local/cuda,
# /opt/cuda; Debian's nvidia-cuda-toolkit in /usr; and pip's wheels (nvidia-cublas-cu12, nvidia-nccl-cu12, …) in python3's
# site-packages/nvidia. cuBLASLt and NCCL are loaded when a trainer first uses them, so a build with CUDA needs no CUDA library
# to start, and trains on CPUs where there is none.
set(HEADSWEEP_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (if CUDA is found), ON or OFF")
set_property(CACHE HEADSWEEP_CUDA PROPERTY STRINGS AUTO ON OFF)
set(HEADSWEEP_CUDA_ARCHITECTURES "" CACHE STRING "GPU architectures, \"80;90;100\"; empty: this machine's GPUs, or else 80")
set(HEADSWEEP_WITH_CUDA OFF)

# Says why there is no CUDA backend: an error if it was asked for.
macro(headsweep_without_cuda REASON)
  if(HEADSWEEP_CUDA STREQUAL AUTO)
    message(STATUS "CUDA backend: off, ${REASON}")
  else()
    message(FATAL_ERROR "HEADSWEEP_CUDA=${HEADSWEEP_CUDA}: ${REASON}. Configure with -DHEADSWEEP_CUDA=OFF for a build without "
                        "CUDA: the CPU backend builds everywhere.")
  endif()
endmacro()

# Folders that hold NVIDIA's wheels: site-packages/nvidia/<library>.
function(headsweep_find_wheels RESULT)
  find_program(HEADSWEEP_PYTHON python3)
  mark_as_advanced(HEADSWEEP_PYTHON)
  set(wheels "")
  if(HEADSWEEP_PYTHON)
    execute_process(COMMAND ${HEADSWEEP_PYTHON} -c "import site, sys; print(';'.join(site.getsitepackages() + [site.getusersitepackages()]))"
                    OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    foreach(folder IN LISTS folders)
      file(GLOB found "${folder}/nvidia/*")
      list(APPEND wheels ${found})
    endforeach()
  endif()
  set(${RESULT} "${wheels}" PARENT_SCOPE)
endfunction()

# "86;90": compute capabilities of this machine's GPUs; "" where none is.
function(headsweep_detect_gpus RESULT)
  find_program(HEADSWEEP_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(HEADSWEEP_NVIDIA_SMI)
  set(found "")
  if(HEADSWEEP_NVIDIA_SMI)
    execute_process(COMMAND ${HEADSWEEP_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE output RESULT_VARIABLE failed ERROR_QUIET TIMEOUT 20)
    if(NOT failed)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]+" found "${output}")
      list(TRANSFORM found REPLACE "\\." "")
      list(REMOVE_DUPLICATES found)
      list(SORT found COMPARE NATURAL)
    endif()
  endif()
  set(${RESULT} "${found}" PARENT_SCOPE)
endfunction()

# CMAKE_CUDA_ARCHITECTURES from the user's list, without what this nvcc cannot do.
function(headsweep_choose_architectures RESULT)
  set(wanted ${HEADSWEEP_CUDA_ARCHITECTURES})
  if(NOT wanted)
    headsweep_detect_gpus(wanted)
  endif()
  if(NOT wanted)
    set(wanted 80)
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  set(usable "")
  foreach(architecture IN LISTS wanted)
    string(REGEX MATCH "^[0-9]+" number "${architecture}")
    if(known AND NOT known MATCHES "compute_${number}(\n|$)")
      message(WARNING "this nvcc (${CMAKE_CUDA_COMPILER}) does not know architecture ${architecture}: it is left out")
      continue()
    endif()
    list(APPEND usable ${architecture})
  endforeach()
  if(NOT usable)
    message(FATAL_ERROR "HEADSWEEP_CUDA_ARCHITECTURES=${wanted}: this nvcc (${CMAKE_CUDA_COMPILER}) knows none of them")
  endif()
  # Machine code for each; PTX for what is newer than the last.
  list(POP_BACK usable last)
  list(TRANSFORM usable APPEND -real REGEX "^[0-9]+$")
  list(APPEND usable ${last})
  set(${RESULT} "${usable}" PARENT_SCOPE)
endfunction()

# Whether nvcc and the host's compiler get along (nvcc refuses compilers that are newer than it knows); its complaint if not.
function(headsweep_try_nvcc NVCC RESULT)
  set(source ${CMAKE_BINARY_DIR}/CMakeFiles/headsweep_try_nvcc.cu)
  file(WRITE ${source} "#include <string>\n__global__ void Set(float* x) { *x = 1; }\nstd::string name;\n")
  execute_process(COMMAND ${NVCC} -std=c++17 -c ${source} -o ${source}.o RESULT_VARIABLE failed OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  set(${RESULT} "" PARENT_SCOPE)
  if(failed)
    string(REGEX MATCH "[^\n]*[Ee]rror[^\n]*" complaint "${output}")
    set(${RESULT} "${NVCC} cannot compile: ${complaint}" PARENT_SCOPE)
  endif()
endfunction()

if(HEADSWEEP_CUDA)
  find_program(HEADSWEEP_NVCC nvcc
    HINTS ${CMAKE_CUDA_COMPILER} ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH ENV CUDA_ROOT
    PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin DOC "NVIDIA's compiler")
  set(headsweep_nvcc ${HEADSWEEP_NVCC})
  if(CMAKE_CUDA_COMPILER)
    set(headsweep_nvcc ${CMAKE_CUDA_COMPILER})
  elseif(DEFINED ENV{CUDACXX})
    set(headsweep_nvcc $ENV{CUDACXX})
  endif()
  if(NOT headsweep_nvcc)
    headsweep_without_cuda("no nvcc on PATH, in CUDA_HOME or CUDA_PATH, or in /usr/local/cuda (install NVIDIA's CUDA toolkit 12 or later, or load its module)")
  else()
    if(NOT DEFINED HEADSWEEP_NVCC_COMPLAINT OR HEADSWEEP_NVCC_COMPLAINT)
      headsweep_try_nvcc(${headsweep_nvcc} headsweep_complaint)
      set(HEADSWEEP_NVCC_COMPLAINT "${headsweep_complaint}" CACHE INTERNAL "why nvcc cannot be used")
    endif()
  endif()
  if(headsweep_nvcc AND HEADSWEEP_NVCC_COMPLAINT)
    headsweep_without_cuda("${HEADSWEEP_NVCC_COMPLAINT}")
  elseif(headsweep_nvcc)
    set(CMAKE_CUDA_COMPILER ${headsweep_nvcc})
    headsweep_choose_architectures(CMAKE_CUDA_ARCHITECTURES)
    enable_language(CUDA)
    headsweep_find_wheels(headsweep_wheels)
    find_path(HEADSWEEP_CUBLAS_INCLUDE cublasLt.h
      HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ENV CUDA_HOME ENV CUDA_PATH ${headsweep_wheels} PATH_SUFFIXES include)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
      headsweep_without_cuda("nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old: 12.0 or later is needed")
    elseif(NOT HEADSWEEP_CUBLAS_INCLUDE)
      headsweep_without_cuda("nvcc is there (${CMAKE_CUDA_COMPILER}) but not cublasLt.h (NVIDIA: libcublas-dev-*, Debian: libcublas-dev, pip: nvidia-cublas); HEADSWEEP_CUBLAS_INCLUDE may name its folder")
    else()
      set(HEADSWEEP_WITH_CUDA ON)
      # Where the library that belongs to the header may be, for when the dynamic linker does not know.
      get_filename_component(headsweep_cublas_root ${HEADSWEEP_CUBLAS_INCLUDE} DIRECTORY)
      set(HEADSWEEP_CUBLAS_FOLDERS "")
      foreach(folder IN ITEMS ${headsweep_cublas_root}/lib64 ${headsweep_cublas_root}/lib ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES})
        if(EXISTS ${folder} AND NOT folder MATCHES "/stubs$")
          list(APPEND HEADSWEEP_CUBLAS_FOLDERS ${folder})
        endif()
      endforeach()
      list(REMOVE_DUPLICATES HEADSWEEP_CUBLAS_FOLDERS)
      find_path(HEADSWEEP_NCCL_INCLUDE nccl.h
        HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ENV NCCL_HOME ENV NCCL_ROOT ENV CUDA_HOME ${headsweep_wheels} PATH_SUFFIXES include)
      message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}, cublasLt.h in ${HEADSWEEP_CUBLAS_INCLUDE}")
      if(HEADSWEEP_CCACHE)
        set(CMAKE_CUDA_COMPILER_LAUNCHER ${HEADSWEEP_CCACHE})
      endif()
    endif()
  endif()
endif()
