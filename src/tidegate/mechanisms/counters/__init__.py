"""Running, decayed and sliding sums: trees and factorisations."""
