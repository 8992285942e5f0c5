#include "memsaver/graph/impl.hpp"
