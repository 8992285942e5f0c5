// The two forms of the library: header-only, or compiled once. Knows nothing else.
#pragma once

#if __cplusplus < 202002L
#error "memsaver needs C++20: compile with -std=c++20 or newer"
#endif

// What a definition in an .ipp file begins with. In the header-only form each header includes its .ipp file and all
// definitions are inline; with MEMSAVER_COMPILED (the CMake target memsaver::compiled defines it) they are compiled
// once. It moves definitions and changes nothing else.
#ifdef MEMSAVER_COMPILED
#define MEMSAVER_INLINE
#else
#define MEMSAVER_INLINE inline
#endif
