// A second translation unit for every test program: a definition without `inline` in a header fails to link.
#include "memsaver/memsaver.hpp"

#if __has_include("memsaver/testing/testing.hpp")
#include "memsaver/testing/testing.hpp"
#endif
