/* A clock that a time daemon synchronizes, for a machine that has none: LD_PRELOAD it. While the
   file $UNSYNCHRONIZED exists, the clock is not synchronized. */
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>

int adjtimex(struct timex *clock)
{
	const char *file = getenv("UNSYNCHRONIZED");
	int lost = file && access(file, F_OK) == 0;

	memset(clock, 0, sizeof *clock);
	clock->status = lost ? STA_UNSYNC : STA_PLL;
	return lost ? TIME_ERROR : TIME_OK;
}
