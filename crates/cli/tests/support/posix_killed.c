/* A program that writes 200 blocks of a disk, one behind the other, then its number into a file, and is killed. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
	static char block[4096];
	int disk = open(words[1], O_RDWR);
	for (int number = 0; number < 200; number++) {
		memset(block, number, sizeof block);
		if (write(disk, block, sizeof block) != sizeof block)
			return 1;
	}
	FILE *file = fopen(words[2], "w");
	if (file == NULL || fprintf(file, "%d\n", getpid()) < 0 || fclose(file) != 0)
		return 1;
	raise(SIGKILL);
}
