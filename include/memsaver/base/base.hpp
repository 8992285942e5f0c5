// The door of base/: what every other layer may lean on.
#pragma once

#include "memsaver/base/error.hpp"
#include "memsaver/base/event.hpp"
#include "memsaver/base/quarantine.hpp"
#include "memsaver/base/report.hpp"
#include "memsaver/base/sizes.hpp"
#include "memsaver/base/source_place.hpp"
#include "memsaver/base/span.hpp"
#include "memsaver/base/status.hpp"
#include "memsaver/base/version.hpp"
