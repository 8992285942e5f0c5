// Includes the header first, but for macros that other headers define, and uses every initializer: self-contained and
// free of warnings.
#include "support/foreign_macros.h"

#include <memsaver/c.h>

#include "support/foreign_macros_kept.h"

size_t sizes_of_structures(void);

size_t sizes_of_structures(void) {
    const memsaver_error error = MEMSAVER_ERROR_INIT;
    const memsaver_policy policy = MEMSAVER_POLICY_INIT;
    const memsaver_options options = MEMSAVER_OPTIONS_INIT;
    const memsaver_info info = MEMSAVER_INFO_INIT;
    const memsaver_arena_options arena = MEMSAVER_ARENA_OPTIONS_INIT;
    const memsaver_report report = MEMSAVER_REPORT_INIT;
    const memsaver_pause_options pause = MEMSAVER_PAUSE_OPTIONS_INIT;
    const memsaver_resume_options resume = MEMSAVER_RESUME_OPTIONS_INIT;
    const memsaver_exchange_options exchange = MEMSAVER_EXCHANGE_OPTIONS_INIT;
    const memsaver_usage usage = MEMSAVER_USAGE_INIT;
    const memsaver_share_options share = MEMSAVER_SHARE_OPTIONS_INIT;
    const memsaver_publish_options publish = MEMSAVER_PUBLISH_OPTIONS_INIT;
    const memsaver_attach_options attach = MEMSAVER_ATTACH_OPTIONS_INIT;
    const memsaver_attached_info attached = MEMSAVER_ATTACHED_INFO_INIT;
    const memsaver_attached_range range = MEMSAVER_ATTACHED_RANGE_INIT;
    return error.size + policy.size + options.size + info.size + arena.size + report.size + pause.size + resume.size +
           exchange.size + usage.size + share.size + publish.size + attach.size + attached.size + range.size +
           MEMSAVER_DEFAULT_ALIGNMENT + (options.enabled && policy.retain ? MEMSAVER_UNDER : 0) +
           (foreign_macros_kept() ? 1 : 0);
}
