// Dark or light: what the reader chose before, else what the system prefers. Loaded first, so that nothing flashes.
(() => {
  const root = document.documentElement;
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("theme");
  const apply = () => {
    const theme = chosen() ?? (prefers.matches ? "dark" : "light");
    root.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = theme === "dark" ? "Light" : "Dark";
    dispatchEvent(new Event("themechange"));
  };
  apply();
  prefers.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem("theme", root.dataset.theme === "dark" ? "light" : "dark");
      apply();
    });
    apply();
  });
})();
