// The door of transfer/: bytes that move. It does not know tags, nor why they move.
#pragma once

#include "memsaver/transfer/copy_lane.hpp"
#include "memsaver/transfer/crew.hpp"
#include "memsaver/transfer/lane.hpp"
#include "memsaver/transfer/piece.hpp"
#include "memsaver/transfer/pinned_transfer.hpp"
#include "memsaver/transfer/progress.hpp"
#include "memsaver/transfer/range.hpp"
#include "memsaver/transfer/ring_transfer.hpp"
#include "memsaver/transfer/ticket.hpp"
