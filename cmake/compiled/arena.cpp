#include "memsaver/arena/impl.hpp"
