"""The messages of each family, as msgspec structs whose field names are the keys on the wire."""
