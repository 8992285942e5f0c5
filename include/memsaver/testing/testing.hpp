// Includes all of testing/, which users' tests may use too.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/testing/call_log.hpp"
#include "memsaver/testing/driver_contract.hpp"
#include "memsaver/testing/failure.hpp"
#include "memsaver/testing/faulty_driver.hpp"
#include "memsaver/testing/ledger.hpp"
#include "memsaver/testing/sweep.hpp"

#include "memsaver/core/macros_on.hpp"
