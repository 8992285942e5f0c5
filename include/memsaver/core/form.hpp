// The two forms of the library: header-only, or compiled once.
#pragma once

#if __cplusplus < 202002L
#error "memsaver needs C++20: compile with -std=c++20 or newer"
#elif !defined(__cpp_exceptions)
#error "memsaver needs exceptions: compile without -fno-exceptions"
#elif !defined(__cpp_rtti)
#error "memsaver needs run-time type information: compile without -fno-rtti"
#else
#define MEMSAVER_USABLE // otherwise memsaver.hpp declares nothing, so that this line stays the only error of its own
#endif

// The first token of every definition in an .ipp file. In the header-only form each header includes its .ipp file and
// all definitions are inline. With MEMSAVER_COMPILED (defined by the CMake target memsaver::compiled) the definitions
// are compiled once. The macro only decides where definitions are compiled.
#ifdef MEMSAVER_COMPILED
#define MEMSAVER_INLINE
#else
#define MEMSAVER_INLINE inline
#endif
