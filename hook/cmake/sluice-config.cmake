# find_package(sluice): the target sluice::scheduler, the headers of sluice/scheduler.hpp with what they link.
#   cmake -Dsluice_DIR=…/hook/cmake
include(CMakeFindDependencyMacro)
find_dependency(Threads)
if(NOT TARGET sluice::scheduler)
  add_library(sluice::scheduler INTERFACE IMPORTED)
  get_filename_component(SLUICE_HEADERS "${CMAKE_CURRENT_LIST_DIR}/../include" ABSOLUTE)
  set_target_properties(sluice::scheduler PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${SLUICE_HEADERS}"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS}")
endif()
