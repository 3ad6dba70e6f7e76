/* What an archive that was compiled with a newer glibc asks for, by its names there.
 *
 * To be compiled as C99: for later standards glibc's own headers use the new names. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

long __isoc23_strtol(const char *s, char **end, int base) { return strtol(s, end, base); }

long long __isoc23_strtoll(const char *s, char **end, int base) { return strtoll(s, end, base); }

int __isoc23_sscanf(const char *s, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int found = vsscanf(s, format, arguments);
    va_end(arguments);
    return found;
}
