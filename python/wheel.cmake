# What the wheel carries beside the Python files; included by the root when scikit-build-core builds it.
set(GAP_PYTHON_PACKAGE gapless)
install(PROGRAMS $<TARGET_FILE:gapless> DESTINATION ${GAP_PYTHON_PACKAGE}/_lib RENAME libgapless.so COMPONENT python)
install(PROGRAMS $<TARGET_FILE:gapless_command> DESTINATION ${GAP_PYTHON_PACKAGE}/_bin COMPONENT python)
install(DIRECTORY include/gapless DESTINATION ${GAP_PYTHON_PACKAGE}/_include COMPONENT python FILES_MATCHING PATTERN "*.h")
install(DIRECTORY shim/torch/ DESTINATION ${GAP_PYTHON_PACKAGE}/_shim_sources COMPONENT python FILES_MATCHING PATTERN "*.cpp" PATTERN "*.h")
install(FILES python/gapless.pth DESTINATION . COMPONENT python)
