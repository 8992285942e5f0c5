// The door of testing/: what users' tests may use too.
#pragma once

#include "memsaver/testing/call_log.hpp"
#include "memsaver/testing/failure.hpp"
#include "memsaver/testing/faulty_driver.hpp"
#include "memsaver/testing/ledger.hpp"
#include "memsaver/testing/sweep.hpp"
