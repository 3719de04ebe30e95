"""What people read of a stream: report, card, registry record, explanations. Everything here sees releases only."""
