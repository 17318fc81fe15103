// visits counts the pages shown since the interface was loaded.
export const visits = { count: 0 }
