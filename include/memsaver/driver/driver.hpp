// The door of driver/: machines with addresses, pages, streams and copies. They do not know tags or policies.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/driver/cuda_driver.hpp"
#include "memsaver/driver/default_driver.hpp"
#include "memsaver/driver/handles.hpp"
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/driver/system_fork.hpp"
