#include "memsaver/saver/impl.hpp"
