# Where nvcc, cuBLAS and NCCL may be. Functions alone, for HeadsweepCuda.cmake and for tests/cluster/cuda_places.cmake.
#
# Places: CMAKE_CUDA_COMPILER or CUDACXX; $CUDA_HOME, $CUDA_PATH, $CUDA_ROOT, $NCCL_HOME, $NCCL_ROOT (environment modules); PATH;
# /usr/local/cuda, /opt/cuda; Debian's packages in /usr; and pip's wheels in python3's site-packages/nvidia: a folder for each
# library up to CUDA 12 (nvidia-cublas-cu12, nvidia-nccl-cu12; nvcc is in none of them), cu13 for all of CUDA 13
# (nvidia-cublas, nvidia-cuda-nvcc, nvidia-cuda-runtime, nvidia-cuda-crt, nvidia-nvvm; NCCL's is nccl still).
set(HEADSWEEP_CUDA_PLACES /usr/local/cuda /opt/cuda)

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

# Cache variable HEADSWEEP_NVCC: NVIDIA's compiler. Wheels come last: they may lack half of it.
function(headsweep_find_nvcc WHEELS)
  find_program(HEADSWEEP_NVCC nvcc
    HINTS ${CMAKE_CUDA_COMPILER} ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH ENV CUDA_ROOT
    PATHS ${HEADSWEEP_CUDA_PLACES} ${WHEELS} PATH_SUFFIXES bin DOC "NVIDIA's compiler")
endfunction()

# Cache variables HEADSWEEP_CUBLAS_INCLUDE (cublasLt.h) and HEADSWEEP_NCCL_INCLUDE (nccl.h). TOOLKIT: include folders of nvcc.
function(headsweep_find_cuda_headers TOOLKIT WHEELS)
  find_path(HEADSWEEP_CUBLAS_INCLUDE cublasLt.h
    HINTS ${TOOLKIT} ENV CUDA_HOME ENV CUDA_PATH ENV CUDA_ROOT PATHS ${WHEELS} ${HEADSWEEP_CUDA_PLACES} PATH_SUFFIXES include)
  find_path(HEADSWEEP_NCCL_INCLUDE nccl.h
    HINTS ENV NCCL_HOME ENV NCCL_ROOT ${TOOLKIT} ENV CUDA_HOME ENV CUDA_PATH ENV CUDA_ROOT
    PATHS ${WHEELS} ${HEADSWEEP_CUDA_PLACES} PATH_SUFFIXES include)
endfunction()

# Folders where the library that belongs to HEADSWEEP_CUBLAS_INCLUDE may be, for when the dynamic linker does not know.
# LINKED: folders that nvcc links from.
function(headsweep_cublas_folders RESULT LINKED)
  get_filename_component(root ${HEADSWEEP_CUBLAS_INCLUDE} DIRECTORY)
  set(folders "")
  foreach(folder IN ITEMS ${root}/lib64 ${root}/lib ${LINKED})
    if(EXISTS ${folder} AND NOT folder MATCHES "/stubs$")
      list(APPEND folders ${folder})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(${RESULT} "${folders}" PARENT_SCOPE)
endfunction()
