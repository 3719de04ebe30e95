"""w-event privacy (Kellaris et al. 2014): Budget Distribution and Budget Absorption."""
