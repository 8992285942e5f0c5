#include "memsaver/heap/impl.hpp"
