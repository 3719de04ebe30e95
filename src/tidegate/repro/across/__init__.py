"""What none of the papers has: every mechanism on every stream, with parameters chosen blindly and by an oracle."""
