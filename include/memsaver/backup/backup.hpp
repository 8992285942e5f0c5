// How bytes are copied, and where they are kept while their tag is paused. Knows nothing about arenas.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/backup/backup_index.hpp"
#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/backup/executor.hpp"
#include "memsaver/backup/file_backup.hpp"
#include "memsaver/backup/file_source.hpp"
#include "memsaver/backup/file_store.hpp"
#include "memsaver/backup/host_backup.hpp"
#include "memsaver/backup/host_store.hpp"
#include "memsaver/backup/peer_backup.hpp"
#include "memsaver/backup/peer_store.hpp"
#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/refresh.hpp"
#include "memsaver/backup/source_files.hpp"
#include "memsaver/backup/source_store.hpp"
#include "memsaver/backup/store.hpp"
#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/backup/ticket.hpp"
#include "memsaver/backup/transfer.hpp"

#include "memsaver/core/macros_on.hpp"
