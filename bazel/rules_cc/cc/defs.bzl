"""The native C++ rules under the names that other rule sets load from rules_cc."""

cc_library = native.cc_library
cc_binary = native.cc_binary
cc_test = native.cc_test
cc_import = native.cc_import
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
cc_flags_supplier = native.cc_toolchain_alias
compiler_flag = native.cc_toolchain_alias
