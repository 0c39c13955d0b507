# headsweep_kernels_cuda: the sources of this folder compiled for cards. Included by kernels/CMakeLists.txt in builds with CUDA.
# C++17 for nvcc (CMake 3.25 knows no C++20 for nvcc 13); the runtime is linked statically, cuBLASLt is loaded when first used.
set(folder ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
list(TRANSFORM HEADSWEEP_CUDA_KERNELS PREPEND ${folder}/ OUTPUT_VARIABLE kernels)
add_library(headsweep_kernels_cuda STATIC
  ${kernels}
  ${folder}/cublaslt_library.cc
  ${folder}/device.cc
  ${folder}/matmul_cublaslt.cc
  ${folder}/target_card.cc)
# Not headsweep_flags: its C++20 and most of its warnings are not for nvcc.
target_include_directories(headsweep_kernels_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(headsweep_kernels_cuda SYSTEM PRIVATE
  ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${HEADSWEEP_CUBLAS_INCLUDE})
target_compile_options(headsweep_kernels_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:-std=c++20 -Wall -Wextra -Wshadow>
  $<$<COMPILE_LANGUAGE:CUDA>:--diag-suppress=20012 -Xcompiler=-Wall>
  $<$<BOOL:${HEADSWEEP_WERROR}>:$<IF:$<COMPILE_LANGUAGE:CUDA>,--Werror=all-warnings,-Werror>>)
find_library(HEADSWEEP_CUDART cudart_static REQUIRED HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} ${HEADSWEEP_CUBLAS_FOLDERS})
target_link_libraries(headsweep_kernels_cuda
  PRIVATE fmt::fmt
  INTERFACE $<LINK_ONLY:headsweep_kernels> ${HEADSWEEP_CUDART} Threads::Threads rt ${CMAKE_DL_LIBS})
list(JOIN CMAKE_CUDA_ARCHITECTURES "," architectures)
list(JOIN HEADSWEEP_CUBLAS_FOLDERS ":" cublas_folders)
set_source_files_properties(${folder}/device.cc PROPERTIES COMPILE_DEFINITIONS HEADSWEEP_CUDA_ARCHITECTURES="${architectures}")
set_source_files_properties(${folder}/cublaslt_library.cc PROPERTIES COMPILE_DEFINITIONS
  HEADSWEEP_CUBLAS_FOLDERS="${cublas_folders}")
set_target_properties(headsweep_kernels_cuda PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY None)
