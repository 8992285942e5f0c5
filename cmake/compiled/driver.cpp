#include "memsaver/driver/impl.hpp"
