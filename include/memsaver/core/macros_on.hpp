// Restores the macros that core/macros_off.hpp removed.

#pragma pop_macro("slots")
#pragma pop_macro("min")
#pragma pop_macro("max")
#pragma pop_macro("emit")
#pragma pop_macro("Status")
#pragma pop_macro("Region")
