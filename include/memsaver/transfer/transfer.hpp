// The door of transfer/: bytes that move. It does not know tags, nor why they move.
#pragma once

#include "memsaver/transfer/lane.hpp"
#include "memsaver/transfer/range.hpp"
#include "memsaver/transfer/ticket.hpp"
