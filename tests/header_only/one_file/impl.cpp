#include <memsaver/impl.hpp>
