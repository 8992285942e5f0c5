#include "memsaver/host/impl.hpp"
