# SPDX-License-Identifier: Apache-2.0
# Install rules, the CMake and pkg-config packages, and CPack's archives. Components: runtime (the
# shared library and the tuned configurations), dev (headers, packages, the link named
# libswitchback.so, the documents and the examples), bench (the program). All paths are relative to
# the prefix, so that an installed prefix can be moved.
include(CMakePackageConfigHelpers)

file(STRINGS "${PROJECT_SOURCE_DIR}/include/switchback/switchback.h" _abi
     REGEX "^#define SWITCHBACK_ABI_VERSION_(MAJOR|MINOR) [0-9]+$")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" SWITCHBACK_ABI_VERSION "${_abi}")

set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/switchback")
install(TARGETS switchback EXPORT switchback-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_COMPONENT dev
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
# Search paths for libraries (RPATH). Libraries in the same folder (for example oneDNN in a wheel)
# are preferred to the system's. The build folder's files have the same search paths. If the paths
# differed, CMake would end those in the build folder with a colon to replace them during
# installation. Such an empty element means the current directory of the process that loads the
# file.
if(UNIX AND NOT APPLE)
  set(_installed switchback switchback-validate)
  if(SWITCHBACK_BENCH)
    list(APPEND _installed switchback-bench)
  endif()
  set_target_properties(${_installed} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
  set_target_properties(switchback PROPERTIES INSTALL_RPATH "$ORIGIN")
  # switchback-validate is in lib/switchback of an installation, and in bin of a bundle.
  set_target_properties(switchback-validate PROPERTIES INSTALL_RPATH "$ORIGIN/..;$ORIGIN/../lib")
  if(SWITCHBACK_BENCH)
    set_target_properties(switchback-bench PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  endif()
endif()
install(DIRECTORY include/switchback DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev)
install(DIRECTORY data/configs/ DESTINATION "${CMAKE_INSTALL_DATADIR}/switchback/configs"
        COMPONENT runtime FILES_MATCHING PATTERN "*.jsonl")
# The tuner's helper program is in a separate folder, because users do not run it.
install(TARGETS switchback-validate RUNTIME DESTINATION "${CMAKE_INSTALL_LIBDIR}/switchback"
        COMPONENT runtime)
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
install(FILES README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT dev)
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT dev
        FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples/library/ DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples" COMPONENT dev)
install(FILES data/digits/digits.csv DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples" COMPONENT dev)
install(FILES data/digits/README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples" COMPONENT dev
        RENAME digits.md)
if(SWITCHBACK_BENCH)
  install(TARGETS switchback-bench RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT bench)
endif()

install(EXPORT switchback-targets NAMESPACE switchback:: DESTINATION "${_package_dir}"
        COMPONENT dev)
configure_package_config_file(cmake/switchback-config.cmake.in
  "${PROJECT_BINARY_DIR}/package/switchback-config.cmake" INSTALL_DESTINATION "${_package_dir}")
# Before 1.0.0 a minor version may break compatibility with the previous one.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/switchback-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/switchback-config.cmake"
              "${PROJECT_BINARY_DIR}/package/switchback-config-version.cmake"
        DESTINATION "${_package_dir}" COMPONENT dev)
if(NOT SWITCHBACK_SHARED)
  install(FILES cmake/backends.cmake DESTINATION "${_package_dir}" COMPONENT dev
          RENAME switchback-backends.cmake)
endif()

# The pkg-config package. Users of a static library must also link its dependencies.
file(RELATIVE_PATH SWITCHBACK_PC_PREFIX "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
set(_libraries -lhwy)
if(SWITCHBACK_HAVE_ONEDNN)
  list(APPEND _libraries -ldnnl)
endif()
if(SWITCHBACK_HAVE_OPENBLAS)
  list(APPEND _libraries -lopenblas)
endif()
if(OpenMP_CXX_FOUND)
  list(APPEND _libraries ${OpenMP_CXX_FLAGS})
endif()
if(SWITCHBACK_HAVE_CUDA)
  list(APPEND _libraries "-L${CUDAToolkit_LIBRARY_DIR}" -lcudart_static -lrt)
endif()
list(APPEND _libraries -lstdc++ -lm -ldl -pthread)
string(JOIN " " _libraries ${_libraries})
if(SWITCHBACK_SHARED)
  set(SWITCHBACK_PC_LIBS "-L\${libdir} -lswitchback")
else()
  set(SWITCHBACK_PC_LIBS "-L\${libdir} -lswitchback ${_libraries}")
endif()
configure_file(cmake/switchback.pc.in "${PROJECT_BINARY_DIR}/package/switchback.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/package/switchback.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)

if(SWITCHBACK_TOP_LEVEL)
  set(CPACK_PACKAGE_NAME switchback)
  set(CPACK_PACKAGE_VENDOR "The switchback authors")
  set(CPACK_PACKAGE_CONTACT "The switchback authors")
  set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
  set(CPACK_STRIP_FILES ON)
  set(CPACK_GENERATOR TGZ)
  find_program(SWITCHBACK_SHLIBDEPS dpkg-shlibdeps)
  mark_as_advanced(SWITCHBACK_SHLIBDEPS)
  if(SWITCHBACK_SHLIBDEPS)
    list(APPEND CPACK_GENERATOR DEB)
  endif()
  # CPack makes one archive of everything, and one Debian package per component, named as Debian
  # names packages.
  set(CPACK_COMPONENTS_ALL runtime dev)
  if(SWITCHBACK_BENCH)
    list(APPEND CPACK_COMPONENTS_ALL bench)
  endif()
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_BENCH_PACKAGE_SECTION science)
  # The first line of a description is the Debian package's summary. CPack would prepend a common
  # summary.
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
  set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "int8 linear layers that train and infer - shared library
Linear layers with int8 products for training and for inference: quantize kernels, int8
products with the dequantize in their epilogue, layers on top of them, and an autotuner, for
C++ and C programs.")
  set(CPACK_DEBIAN_DEV_DESCRIPTION "int8 linear layers that train and infer - development files
Headers of the C++ and the C interface, the CMake and pkg-config packages, and examples.")
  set(CPACK_DEBIAN_BENCH_DESCRIPTION "int8 linear layers that train and infer - measuring program
switchback-bench says whether int8 layers pay on a machine and from which size on, checks every
operation against references, and tunes the library for the machine.")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
  set(CPACK_COMPONENT_DEV_DEPENDS runtime)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME
      "libswitchback${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  set(CPACK_DEBIAN_DEV_PACKAGE_NAME libswitchback-dev)
  set(CPACK_DEBIAN_BENCH_PACKAGE_NAME switchback-bench)
  include(CPack)
endif()
