// A second translation unit for every test program: whatever a header defines without `inline` does not link.
#include "memsaver/memsaver.hpp"

#if __has_include("memsaver/testing/testing.hpp")
#include "memsaver/testing/testing.hpp"
#endif
