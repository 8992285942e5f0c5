#include "memsaver/core/impl.hpp"
