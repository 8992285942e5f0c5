#include "memsaver/interop/impl.hpp"
