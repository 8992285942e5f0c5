// Removes macros of other libraries that are names here, until core/macros_on.hpp restores them: `Status` and `Region`
// of X11, `emit` and `slots` of Qt, `min` and `max`. The headers that programs include begin with this file and end
// with that one, so that they may follow any other header. Included more than once; pairs nest.

#pragma push_macro("Region")
#pragma push_macro("Status")
#pragma push_macro("emit")
#pragma push_macro("max")
#pragma push_macro("min")
#pragma push_macro("slots")
#undef Region
#undef Status
#undef emit
#undef max
#undef min
#undef slots
