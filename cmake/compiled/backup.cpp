#include "memsaver/backup/impl.hpp"
