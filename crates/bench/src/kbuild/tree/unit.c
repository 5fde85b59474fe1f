/* Something to do for a compiler: functions that are all different, and depend on each other. */

#define JOIN3(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN3(a, b, c)
#define NAME(n) JOIN(work, UNIT, n)

struct table {
	unsigned long keys[16];
	unsigned char marks[64];
};

unsigned long JOIN(work, UNIT, first)(struct table *table, unsigned long seed);

#define FUNCTION(n, before)                                                                                        \
	unsigned long NAME(n)(struct table *table, unsigned long seed);                                            \
	unsigned long NAME(n)(struct table *table, unsigned long seed)                                             \
	{                                                                                                          \
		unsigned long sum = seed * (2 * n##u + 1) + UNIT;                                                  \
		unsigned int index;                                                                                \
		for (index = 0; index < 16; index++) {                                                             \
			switch ((sum >> index) & 7) {                                                              \
			case 0: sum ^= table->keys[index] << (n##u % 13); break;                                   \
			case 1: sum += table->marks[index * 4] * n##u; break;                                      \
			case 2: table->keys[index] = sum; break;                                                   \
			case 3: table->marks[index + 3] ^= (unsigned char)sum; break;                              \
			case 4: sum = (sum << 7) | (sum >> 25); break;                                             \
			case 5: sum -= before(table, sum / 3); break;                                              \
			default: sum = sum * 33 + table->keys[(index + n##u) % 16];                                \
			}                                                                                          \
		}                                                                                                  \
		return sum;                                                                                        \
	}

unsigned long NAME(first)(struct table *table, unsigned long seed)
{
	return table->keys[seed % 16] + seed;
}

FUNCTION(1, NAME(first))
FUNCTION(2, NAME(1))
FUNCTION(3, NAME(2))
