"""The image ``base`` of atoll, ready made: an archive beside this file, which atoll unpacks when it is first used."""
